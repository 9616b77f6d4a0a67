/* outbill:settle_retry */
UPDATE {table}
SET {retry_count} = ?,
  {next_retry_time} = NOW(6) + INTERVAL
    (? + MOD({time_unit_us} - MOD(MICROSECOND(NOW(6)) + ?, {time_unit_us}), {time_unit_us})) MICROSECOND
WHERE {id} = ? AND {status} IN ({pending_any})
  AND {retry_count} <=> ? AND CAST({next_retry_time} AS CHAR) <=> ? {same_version} {condition}
