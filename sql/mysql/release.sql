/* outbill:release */
DELETE FROM {hold_table} WHERE route = ?
