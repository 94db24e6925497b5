SELECT at_s AS 'second', value AS 'demand ratio'
FROM series
WHERE record = '2026-11-22-scaling' AND cell = '10x' AND name = 'http_scaling_demand_ratio'
ORDER BY 1
