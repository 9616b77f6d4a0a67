SELECT {id} AS outbill_id, {next_retry_time} AS outbill_next
FROM {table} {index}
WHERE {status} = {pending} AND {next_retry_time} <= NOW(6) {after}
ORDER BY {next_retry_time}, {id}
LIMIT ?
