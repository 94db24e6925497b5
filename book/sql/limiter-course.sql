SELECT CAST(at_s AS INTEGER) AS 'second', avg(value) AS 'in time', 'round ' || (round + 1) AS round
FROM series
WHERE record = '2026-11-22-adaptive' AND cell = 'course' AND server = 'gradient' AND name = 'goodput_per_s'
GROUP BY round, CAST(at_s AS INTEGER)
ORDER BY 1
