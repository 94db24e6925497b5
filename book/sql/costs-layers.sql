SELECT cell, server AS 'layers', printf('%.3f', ratio) AS ratio, printf('%.3f to %.3f', low, high) AS '95 %', pairs
FROM comparisons
WHERE record = '2026-11-22-layers' AND baseline = 'text'
ORDER BY cell, server DESC
