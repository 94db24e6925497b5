SELECT cell, server AS 'layers', printf('%.3f', ratio) AS ratio, interval_3 AS 'interval', covers, pairs
FROM intervals
WHERE record = '2026-11-22-layers' AND baseline = 'text'
ORDER BY cell, server DESC
