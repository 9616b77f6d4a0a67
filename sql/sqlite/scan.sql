/* outbill:scan */
SELECT {entry_id_read}, CAST(outbill_next AS TEXT), {id} IS NOT NULL {condition}, CAST({type} AS TEXT)
FROM ({entries}) AS outbill_entry
LEFT JOIN {table} ON {id} = outbill_id
{scan_order}
