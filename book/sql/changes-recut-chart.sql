SELECT cell, ratio AS 'ratio'
FROM comparisons
WHERE record = '2026-11-22-recut' AND server = 'after' AND baseline = 'before'
ORDER BY cell
