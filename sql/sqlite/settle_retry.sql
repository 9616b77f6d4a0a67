/* outbill:settle_retry */
UPDATE {table}
SET {retry_count} = ?, {next_retry_time} = strftime('%Y-%m-%d %H:%M:%f', 'now', ?)
WHERE {id} = ? AND {status} IN ({pending_any})
  AND {retry_count} IS ? AND {next_retry_time} IS ? {same_version} {condition}
