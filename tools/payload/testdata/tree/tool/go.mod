module example.org/tool

go 1.26.0
