/* outbill:types */
{timed} CONCAT({type})
FROM (SELECT {id} AS outbill_id FROM {table} {index} WHERE {status} = {value} LIMIT ?) AS outbill_entry
JOIN {table} ON {id} = outbill_id
WHERE {id} IS NOT NULL {condition}
