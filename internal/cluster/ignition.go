package cluster

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
)

// maxFile bounds a file of an Ignition configuration after decompression.
const maxFile = 4 << 20

// ignition is a configuration of Ignition, https://coreos.github.io/ignition/configuration-v3_4/,
// as far as we read it.
type ignition struct {
	Storage struct {
		Files []ignitionFile `json:"files"`
	} `json:"storage"`
	Systemd struct {
		Units []ignitionUnit `json:"units"`
	} `json:"systemd"`
}

type ignitionFile struct {
	Path     string `json:"path"`
	Contents struct {
		Source      string `json:"source"`
		Compression string `json:"compression"`
	} `json:"contents"`
}

type ignitionUnit struct {
	Name     string           `json:"name"`
	Contents string           `json:"contents"`
	Dropins  []ignitionDropin `json:"dropins"`
}

type ignitionDropin struct {
	Name     string `json:"name"`
	Contents string `json:"contents"`
}

func parseIgnition(raw []byte) (ignition, error) {
	if len(raw) == 0 {
		return ignition{}, errors.New("it is empty")
	}
	var config ignition
	if err := json.Unmarshal(raw, &config); err != nil {
		return ignition{}, errors.New("it is not an Ignition configuration in JSON")
	}
	return config, nil
}

// unit is the text of a unit with that of its drop-ins after it, in the order in which systemd
// reads them.
func (c ignition) unit(name string) (string, bool) {
	i := slices.IndexFunc(c.Systemd.Units, func(u ignitionUnit) bool { return u.Name == name && u.Contents != "" })
	if i < 0 {
		return "", false
	}
	u := c.Systemd.Units[i]
	dropins := slices.Clone(u.Dropins)
	slices.SortStableFunc(dropins, func(a, b ignitionDropin) int { return strings.Compare(a.Name, b.Name) })
	text := u.Contents
	for _, d := range dropins {
		text += "\n" + d.Contents
	}
	return text, true
}

// file is the content of a file; the second answer says whether it is there. Files that Ignition
// would fetch from elsewhere are an error.
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

// dataURL decodes a URL of RFC 2397. An empty source is an empty file.
func dataURL(source string) ([]byte, error) {
	if source == "" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(source, "data:")
	if !ok {
		return nil, errors.New("it is not part of the configuration")
	}
	media, data, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, errors.New("it is not a data URL")
	}
	text, err := url.PathUnescape(data)
	if err != nil {
		return nil, errors.New("its data URL is not escaped as it should be")
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
