SELECT cell, printf('%.3f', ratio) AS ratio, printf('%.3f to %.3f', low, high) AS '95 %', pairs, verdict
FROM comparisons
WHERE record = '2026-11-22-pgo'
ORDER BY ratio DESC
