/* outbill:scan */
SELECT {entry_id_read}, CAST(outbill_next AS CHAR), {id} IS NOT NULL {condition}, CONCAT({type})
FROM ({entries}) AS outbill_entry
LEFT JOIN {table} ON {id} = outbill_id
{scan_order}
