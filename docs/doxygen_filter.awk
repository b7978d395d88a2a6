# What doxygen reads of a header: the comment at its top is about the file, lines of a comment that are indented by three spaces or more
# (and do not continue a list) are code, and <class> in running text is no HTML.
{
  text = $0
  comment = text ~ /^ *\/\/\//
  if (NR == 1 && comment) print "/// @file"
  indented = text ~ /^ *\/\/\/   /
  if (comment && !indented) list = text ~ /^ *\/\/\/ +- / || (list && text !~ /^ *\/\/\/ *$/ && text ~ /^ *\/\/\/  /)
  is_code = comment && indented && !list
  if (is_code && !code) print "/// @code{.cpp}"
  if (!is_code && code) print "/// @endcode"
  code = is_code
  while (!is_code && text ~ /\/\/\// && match(text, /[ (\/]<[a-z]+>/))
    text = substr(text, 1, RSTART) "&lt;" substr(text, RSTART + 2, RLENGTH - 3) "&gt;" substr(text, RSTART + RLENGTH)
  print text
}
