/* outbill:hold */
INSERT IGNORE INTO {hold_table} (route, class, reason, instance, held_at) VALUES (?, ?, ?, ?, NOW(6))
