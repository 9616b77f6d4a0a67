/* outbill:settle_failed */
UPDATE {table}
SET {status} = {failed}, {retry_count} = ?, {finished_at} = datetime('now') {also_failed}
WHERE {id} = ? AND {status} IN ({pending_any})
  AND {retry_count} IS ? AND {next_retry_time} IS ? {same_version} {condition}
