-- What went before may have the answer.

if answers[1] then
  return answers[1]
end
