SELECT cell, ratio AS 'ratio'
FROM comparisons
WHERE record = '2026-11-22-axum' AND server = 'highwater'
ORDER BY ratio
