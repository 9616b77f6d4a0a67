/* outbill:fetch_due */
SELECT {columns}
FROM {table} {index}
WHERE {status} = {pending} AND {next_retry_time} <= strftime('%Y-%m-%d %H:%M:%f', 'now') {after}
ORDER BY {next_retry_time}, {id}
LIMIT ?
