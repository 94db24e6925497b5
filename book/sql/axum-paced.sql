SELECT cell, printf('%.2f', ratio) AS 'ratio', interval_2 AS 'interval', covers, pairs
FROM intervals
WHERE record = '2026-11-22-axum-paced' AND server = 'highwater'
ORDER BY ratio
