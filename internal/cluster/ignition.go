package cluster

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
)

// maxFile is the maximum size in bytes of a decompressed file in an Ignition configuration.
const maxFile = 4 << 20

// ignition is the part of an Ignition configuration that the operator reads,
// https://coreos.github.io/ignition/configuration-v3_4/.
type ignition struct {
	Storage struct{ Files []ignitionFile }
	Systemd struct{ Units []ignitionUnit }
}

type ignitionFile struct {
	Path     string
	Contents struct{ Source, Compression string }
}

type ignitionUnit struct {
	Name, Contents string
	Dropins        []struct{ Name, Contents string }
}

// execStart returns the command of a systemd unit: the last ExecStart= in its [Service] sections. Like systemd,
// execStart reads the unit first, and then the unit's drop-ins, sorted by name.
// https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines
func (c ignition) execStart(name string) (command string, err error) {
	i := slices.IndexFunc(c.Systemd.Units, func(u ignitionUnit) bool { return u.Name == name && u.Contents != "" })
	if i < 0 {
		return "", errors.New("there is no such unit")
	}
	text, dropins := c.Systemd.Units[i].Contents, slices.Clone(c.Systemd.Units[i].Dropins)
	slices.SortStableFunc(dropins, func(a, b struct{ Name, Contents string }) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, d := range dropins {
		text += "\n" + d.Contents
	}
	section, line := "", ""
	for part := range strings.SplitSeq(text+"\n", "\n") {
		part = strings.TrimSpace(part)
		if strings.HasPrefix(part, "#") || strings.HasPrefix(part, ";") {
			continue
		}
		part, continues := strings.CutSuffix(part, `\`)
		if line += part + " "; continues {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = strings.TrimSpace(line)
		case section == "[Service]" && strings.TrimSpace(key) == "ExecStart":
			command = strings.TrimSpace(value)
		}
		line = ""
	}
	if command == "" {
		return "", errors.New("it has no ExecStart")
	}
	return command, nil
}

// file returns a file's content, and whether the file exists. A file that Ignition would download is an error.
func (c ignition) file(path string) ([]byte, bool, error) {
	i := slices.IndexFunc(c.Storage.Files, func(f ignitionFile) bool { return f.Path == path })
	if i < 0 {
		return nil, false, nil
	}
	contents := c.Storage.Files[i].Contents
	data, err := dataURL(contents.Source)
	if err != nil {
		return nil, true, err
	}
	switch contents.Compression {
	case "":
	case "gzip":
		if data, err = gunzip(data); err != nil {
			return nil, true, errors.New("it can't be decompressed")
		}
	default:
		return nil, true, errors.New("its compression is not known")
	}
	if len(data) > maxFile {
		return nil, true, errors.New("it is too large")
	}
	return data, true, nil
}

func dataURL(source string) ([]byte, error) {
	rest, isData := strings.CutPrefix(source, "data:")
	media, data, found := strings.Cut(rest, ",")
	if !isData || !found {
		return nil, errors.New("it is not part of the configuration")
	}
	text, err := url.PathUnescape(data)
	if err != nil {
		return nil, errors.New("its data URL has a wrong escape")
	}
	if !strings.HasSuffix(media, ";base64") {
		return []byte(text), nil
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("its data URL is not base64")
	}
	return decoded, nil
}

func gunzip(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(reader, maxFile+1))
}
