SELECT {id} AS outbill_id, {next_retry_time} AS outbill_next
FROM {table} {index}
WHERE {status} = {failed} {after}
ORDER BY {next_retry_time}, {id}
LIMIT ?
