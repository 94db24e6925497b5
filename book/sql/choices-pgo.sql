SELECT cell, printf('%.3f', ratio) AS ratio, interval_3 AS 'interval', covers, pairs, verdict
FROM intervals
WHERE record = '2026-11-22-pgo'
ORDER BY ratio DESC
