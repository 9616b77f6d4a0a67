/* outbill:count */
{timed} COUNT(*)
FROM (SELECT 1 FROM {table} {index} WHERE {status} = {value} {range} {condition} LIMIT ?) AS outbill_entry
