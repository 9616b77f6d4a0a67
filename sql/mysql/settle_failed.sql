/* outbill:settle_failed */
UPDATE {table}
SET {status} = {failed}, {retry_count} = ?, {finished_at} = NOW({finished_at_decimals}) {also_failed}
WHERE {id} = ? AND {status} IN ({pending_any})
  AND {retry_count} <=> ? AND CAST({next_retry_time} AS CHAR) <=> ? {same_version} {condition}
