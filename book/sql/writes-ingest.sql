SELECT server, printf('%.2f', ratio) AS 'ratio', printf('%.2f to %.2f', low, high) AS '95 %', pairs
FROM comparisons
WHERE record = '2026-11-22-ingest'
ORDER BY ratio DESC
