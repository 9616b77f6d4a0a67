/* outbill:failed_ids */
SELECT {id_read} FROM {table} WHERE {id} IN ({ids}) AND {status} = {failed} {condition}
