SELECT cell, coalesce(name, server) AS server, printf('%.2f', ratio) AS 'ratio', interval_2 AS 'interval', covers, pairs
FROM intervals LEFT JOIN names USING (server)
WHERE record = '2026-11-21-engine' AND baseline = 'axum' AND pairs >= 5
ORDER BY cell, ratio DESC
