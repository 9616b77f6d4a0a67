SELECT {id} AS outbill_id, {next_retry_time} AS outbill_next
FROM {table} {index}
WHERE {status} = {pending} AND {next_retry_time} <= strftime('%Y-%m-%d %H:%M:%f', 'now') {after}
ORDER BY {next_retry_time}, {id}
LIMIT ?
