/* outbill:settle_done */
UPDATE {table}
SET {status} = {done}, {finished_at} = NOW({finished_at_decimals}) {also_done}
WHERE {id} IN ({ids}) AND {status} IN ({pending_any}) {condition}
