/* outbill:settle_done */
UPDATE {table}
SET {status} = {done}, {finished_at} = datetime('now') {also_done}
WHERE {id} IN ({ids}) AND {status} IN ({pending_any}) {condition}
