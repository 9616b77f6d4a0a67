{id_read},
CAST({type} AS TEXT),
CAST({key} AS TEXT),
CAST({retry_count} AS INTEGER),
CAST({next_retry_time} AS TEXT),
CAST(strftime('%s', {created_at}) AS INTEGER),
CAST({message_id} AS TEXT),
CAST({version} AS TEXT),
LENGTH(CAST({payload} AS BLOB)),
CASE WHEN LENGTH(CAST({payload} AS BLOB)) <= ? THEN CAST({payload} AS BLOB) END,
LENGTH(CAST({headers} AS BLOB)),
CASE WHEN LENGTH(CAST({headers} AS BLOB)) <= ? THEN CAST({headers} AS BLOB) END
{extra}
