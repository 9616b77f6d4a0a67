/* outbill:holds */
SELECT route, class, reason FROM {hold_table}
