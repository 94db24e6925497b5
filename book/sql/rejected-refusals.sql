SELECT server AS 'refused by', median_us AS 'µs'
FROM refusals
WHERE record = '2026-11-22-stress'
ORDER BY median_us
