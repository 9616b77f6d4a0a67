/* outbill:rearm */
UPDATE {table}
SET {status} = {rearmed}, {retry_count} = 0, {next_retry_time} = strftime('%Y-%m-%d %H:%M:%f', 'now'), {finished_at} = NULL {also_rearmed}
WHERE {id} IN ({ids}) AND {status} = {failed} {condition}
