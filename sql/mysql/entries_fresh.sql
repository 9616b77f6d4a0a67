SELECT {id} AS outbill_id, {next_retry_time} AS outbill_next
FROM {table} {index}
WHERE {status} = {pending} AND {next_retry_time} IS NULL {after}
ORDER BY {id}
LIMIT ?
