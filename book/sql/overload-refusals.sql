SELECT server AS 'refused by', printf('%.1f', least_us) AS 'least', printf('%.1f', median_us) AS 'median',
  printf('%.1f', most_us) AS 'most'
FROM refusals
WHERE record = '2026-11-22-stress'
ORDER BY median_us
