/* outbill:find */
SELECT {columns}, CONCAT({status})
FROM {table}
WHERE {id} = ? {condition}
