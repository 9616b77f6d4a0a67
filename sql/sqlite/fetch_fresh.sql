/* outbill:fetch_fresh */
SELECT {columns}
FROM {table} {index}
WHERE {status} = {pending} AND {next_retry_time} IS NULL {after}
ORDER BY {id}
LIMIT ?
