-- An answer each, in their order; false is for what is to be asked alone.

return answers
