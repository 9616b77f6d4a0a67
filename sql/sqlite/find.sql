/* outbill:find */
SELECT {columns}, CAST({status} AS TEXT)
FROM {table}
WHERE {id} = ? {condition}
