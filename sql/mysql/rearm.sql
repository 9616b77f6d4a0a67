/* outbill:rearm */
UPDATE {table}
SET {status} = {rearmed}, {retry_count} = 0, {next_retry_time} = NOW({retry_time_decimals}), {finished_at} = NULL {also_rearmed}
WHERE {id} IN ({ids}) AND {status} = {failed} {condition}
