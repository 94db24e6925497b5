SELECT cell, server, printf('%.2f', ratio) AS ratio, interval_2 AS 'interval', covers, pairs
FROM intervals
WHERE record = '2026-11-22-io-models' AND baseline = 'threads' AND ratio IS NOT NULL
ORDER BY cell, ratio DESC
