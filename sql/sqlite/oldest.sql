/* outbill:oldest */
SELECT CAST(strftime('%s', 'now') AS INTEGER) - CAST(strftime('%s', {created_at}) AS INTEGER)
FROM {table} {index}
WHERE {status} = {value} {range} {condition}
ORDER BY {order}
LIMIT 1
