{id_read},
CONCAT({type}),
CONCAT({key}),
CAST({retry_count} AS SIGNED),
CAST({next_retry_time} AS CHAR),
CAST(FLOOR(UNIX_TIMESTAMP({created_at})) AS SIGNED),
CONCAT({message_id}),
CONCAT({version}),
OCTET_LENGTH({payload}),
CASE WHEN OCTET_LENGTH({payload}) <= ? THEN {payload} END,
OCTET_LENGTH({headers}),
CASE WHEN OCTET_LENGTH({headers}) <= ? THEN {headers} END
{extra}
