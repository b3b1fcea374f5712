package house_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// drawing contains the boxes and texts of an SVG. The pictures have neither groups nor transformations, so the
// coordinates of each element are absolute.
type drawing struct {
	Groups []struct{} `xml:"g"`
	Boxes  []struct {
		X      float64 `xml:"x,attr"`
		Y      float64 `xml:"y,attr"`
		Width  float64 `xml:"width,attr"`
		Height float64 `xml:"height,attr"`
	} `xml:"rect"`
	Texts []struct {
		X       float64 `xml:"x,attr"`
		Y       float64 `xml:"y,attr"`
		Size    float64 `xml:"font-size,attr"`
		Weight  string  `xml:"font-weight,attr"`
		Anchor  string  `xml:"text-anchor,attr"`
		Content string  `xml:",chardata"`
	} `xml:"text"`
}

// A reader may have wider fonts than the author. DejaVu and Verdana are the widest common fonts. Averaged over a text,
// a character is 0.61 of the font size wide, and 0.69 in bold.
const (
	widest     = 0.63
	widestBold = 0.70
)

func TestTextOfPicturesStaysInItsBoxInAnyFont(t *testing.T) {
	t.Parallel()
	pictures, err := filepath.Glob(filepath.Join(root(t), "docs", "*.svg"))
	if err != nil || len(pictures) < 4 {
		t.Fatalf("found %d pictures in docs: %v", len(pictures), err)
	}
	for _, path := range pictures {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var picture drawing
			if err = xml.Unmarshal(content, &picture); err != nil {
				t.Fatal(err)
			}
			if len(picture.Groups) > 0 || len(picture.Texts) < 5 {
				t.Fatalf("the picture must have no groups and at least one text; it has %d groups and %d texts",
					len(picture.Groups), len(picture.Texts))
			}
			for _, text := range picture.Texts {
				share := widest
				if text.Weight != "" {
					share = widestBold
				}
				width := share * text.Size * float64(utf8.RuneCountInString(text.Content))
				left := text.X
				if text.Anchor == "middle" {
					left -= width / 2
				}
				box := 0 // 0 is the whole picture
				for i, b := range picture.Boxes {
					if b.X <= text.X && text.X <= b.X+b.Width && b.Y <= text.Y && text.Y <= b.Y+b.Height &&
						b.Width < picture.Boxes[box].Width {
						box = i
					}
				}
				if b := picture.Boxes[box]; left < b.X || left+width > b.X+b.Width {
					t.Errorf("%q may be %.0f wide, so it doesn't fit into its box, which is %.0f wide", text.Content,
						width, b.Width)
				}
			}
		})
	}
}
