/* outbill:fetch_due */
SELECT {columns}
FROM {table} {index}
WHERE {status} = {pending} AND {next_retry_time} <= NOW(6) {after}
ORDER BY {next_retry_time}, {id}
LIMIT ?
