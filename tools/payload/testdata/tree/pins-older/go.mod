// A pinned module that needs no network: it is replaced by a folder.
module example.org/pins-older

go 1.26.0

tool example.org/tool/cmd/tool

require example.org/tool v1.1.9

replace example.org/tool v1.1.9 => ../tool
