SELECT cell, printf('%.2f', ratio) AS 'ratio', printf('%.2f to %.2f', low, high) AS '95 %', pairs
FROM comparisons
WHERE record = '2026-11-22-axum-paced' AND server = 'highwater'
ORDER BY ratio
