/* outbill:oldest */
{timed} CAST(UNIX_TIMESTAMP(NOW()) - FLOOR(UNIX_TIMESTAMP({created_at})) AS SIGNED)
FROM {table} {index}
WHERE {status} = {value} {range} {condition}
ORDER BY {order}
LIMIT 1
