/* outbill:load */
SELECT {columns}
FROM {table}
WHERE {id} IN ({ids}) AND {status} IN ({pending_any})
  AND ({next_retry_time} IS NULL OR {next_retry_time} <= NOW(6)) {condition}
